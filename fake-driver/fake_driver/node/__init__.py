"""What happens on one node: claims, CDI specs, metadata files, the checkpoint."""
