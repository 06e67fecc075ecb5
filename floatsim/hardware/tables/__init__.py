"""Tables of PTX instructions, fragment layouts, compute capabilities and data sheets."""
