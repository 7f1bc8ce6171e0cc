"""What libraries that take any network make of unusual ones."""
