"""Questions about low-precision training, computed: one module for each topic, and `answer_questions` for all."""
