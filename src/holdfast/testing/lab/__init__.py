"""The lab: programs run in virtual time, with fake tools, scripted people and crashes wherever a test wants them."""
