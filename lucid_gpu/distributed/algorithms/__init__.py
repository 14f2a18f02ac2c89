"""Ways to train on several ranks: uneven inputs, and what travels instead of gradients."""

import os as _os

_ABOVE = _os.path.dirname(_os.path.dirname(__path__[0]))
__path__ = [*__path__, _os.path.join(_ABOVE, "torch_names", "distributed", "algorithms")]
