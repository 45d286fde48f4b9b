"""One run of `trainonce train` killed with -9 again and again, also during saves, against the same run left alone."""
