"""How the ranks of one node are started: torchrun, srun, MPI, Ray, none."""
