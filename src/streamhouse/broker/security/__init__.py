"""Security: who is there (authentication), and what they may do (access control)."""
