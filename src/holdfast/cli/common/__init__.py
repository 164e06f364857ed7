"""What several commands share: options, filters, bulk operations, sending a command."""
