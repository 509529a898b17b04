"""The bundled DRA driver: synthetic devices, the whole kubelet contract, faults on request."""
