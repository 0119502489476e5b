"""What Tidegate claims, where each claim is shown, and the gate that shows that those showings can fail."""
