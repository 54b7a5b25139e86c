// WardControl
