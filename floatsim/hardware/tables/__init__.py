"""Tables: PTX instructions, layouts of fragments, compute capabilities, data sheets."""
