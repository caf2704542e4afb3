"""Where a scheduler has slots run: in this process, in processes beside it, on Kubernetes or in a Lambda function."""
