"""What PyTorch's scripts and other libraries ask for under names and classes of their own."""
