"""Surveys of real matrices in every format: `survey` measures, `report` holds the rows and the tables."""
