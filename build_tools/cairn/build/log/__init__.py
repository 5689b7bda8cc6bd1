"""Reading a build's output: the first causes of a failure (`causes`), and its progress (`progress`)."""
