"""`cupy_backends` over the driver stand-in: the wheel's modules but one, and `driver_standin`."""

import driver_standin

driver_standin.install()
