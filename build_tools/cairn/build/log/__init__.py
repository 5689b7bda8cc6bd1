"""What a build's output tells: the first causes of a failure (`causes`), and how far it is (`progress`)."""
