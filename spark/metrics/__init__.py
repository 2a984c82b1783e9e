"""What the tasks of a read cost: counted in the task, sent to the driver, summed up there."""
