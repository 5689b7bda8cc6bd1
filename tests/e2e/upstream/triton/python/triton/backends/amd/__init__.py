"""The backend of AMD."""
