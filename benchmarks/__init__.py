"""Figures of speed and memory, printed for people; nothing here passes or fails by the clock."""
