"""The survey of real matrices in every format: `survey` runs it, `report` has its rows and tables."""
