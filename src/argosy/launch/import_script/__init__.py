"""Translate a hand-written job script into jobs of ``argosy.toml``.

`importer` reads the statements of the script in order.  `classify` finds what a command is for (the names are in
`program`), and `layers` takes the start of a program apart: srun, container, launcher (their options are in
`launcher_options`), until the `program` is left.  `options` translates the ``#SBATCH`` lines and the options of srun,
and `shape` their numbers.  `variables` translates assignments (`environment`: those that Argosy or the site sets;
`expressions`: those that a shell computes), and `shell_state` has what the script's shell knows at a line.  `fates`
decides about all other statements.  `job` makes the job of each program, and `files` reads the script and writes
``argosy.toml``.
"""
