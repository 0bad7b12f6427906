"""Any table of classes: from rows with a label to class laws."""
