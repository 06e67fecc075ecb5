"""Operations on each element: arithmetic, comparison, functions, distances."""
