"""`ring_attention`: block-sparse attention whose sequence is split over a mesh axis."""
