"""Request, site and image -> plan -> script -> submission.

A launch goes through these modules in order:

1. `request` makes a `LaunchRequest` (`model`) from options, variables, the project file and the configuration.
2. `resolve` asks every question: site, allocation, machine, image, program.  On the way, `complete` applies the options
   that change a whole request, such as ``--smoke``, and `context` chooses partition and shape (`shape`) with the
   defaults of the user and the site.  The result is a `LaunchContext`.
3. `plan` is pure.  `choices` decides what is left, each with its reason: the launcher (`launchers`), the `variables`,
   the settings of the site (`site_settings`).  The result is a `LaunchPlan`.
4. `script` renders the job script from the facts that `plan` gives it.
5. `submit` writes the record of the job and calls sbatch; `submit_ssh` does so on another machine, and `interactive`
   starts the ranks at once.
"""
