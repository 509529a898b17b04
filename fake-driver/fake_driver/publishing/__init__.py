"""ResourceSlices: split, publish, keep as they should be."""
