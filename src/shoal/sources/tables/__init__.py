"""Any table as a source of class laws."""
