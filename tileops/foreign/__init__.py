"""Foreign kernels: what each is made of, what it takes, and where a compile finds it again."""
