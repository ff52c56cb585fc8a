"""Plan → archive. The plan is frozen and sound; writing it asks no questions."""
