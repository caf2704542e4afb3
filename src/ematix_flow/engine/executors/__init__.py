"""Where a scheduler has slots run: in this process, in processes of its own, on Kubernetes or in a Lambda function."""
