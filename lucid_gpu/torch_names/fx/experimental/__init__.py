"""`torch.fx.experimental`: how compilers trace; nothing is traced here."""
