"""What happens beside the churn: one file for each kind of thing, behind one interface."""
