"""Recovery: a broker that lost its disk comes back from its bucket (`thermocline broker --recover-from`)."""
