"""The backend that runs `kernels/` on this machine's processor; `backend` has every function of it."""
