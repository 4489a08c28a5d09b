"""The GPU kit: `make gpu` proves on a machine with GPUs what the other tests cannot prove."""
