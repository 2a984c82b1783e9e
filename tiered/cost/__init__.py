"""What the object store is asked for and what that costs: prices, meter, forecast, budget."""
