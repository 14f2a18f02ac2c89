"""`torch._dynamo.backends`: there are no compilers to choose from."""
