"""Matrix units in exact integers: `dot` joins the models of `nvidia` and `amd` to sums of any length."""
