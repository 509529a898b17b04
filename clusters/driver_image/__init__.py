"""The bundled driver's container image: an OCI archive, made without a container engine or a registry."""
