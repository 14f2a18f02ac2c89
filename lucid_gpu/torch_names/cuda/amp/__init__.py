"""The files of `torch.cuda.amp`."""
