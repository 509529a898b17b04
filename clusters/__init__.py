"""Where a run happens: providers, components, nodes."""
