"""A stream that is not cut into products: known ones are inspected, new ones are found, proposed and adopted."""
