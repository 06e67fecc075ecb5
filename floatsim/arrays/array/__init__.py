"""`FloatArray`, conversion, and the exchange of arrays with NumPy and other libraries."""
