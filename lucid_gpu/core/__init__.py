"""What all else stands on: values, programs, saves, memory, nodes, the engine."""
