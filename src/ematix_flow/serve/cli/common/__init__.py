"""What commands share: options, output, errors, signals and progress."""
