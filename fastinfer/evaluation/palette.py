"""Colours of lines on white or dark ground, which people who see fewer colours tell apart."""

# Okabe and Ito, "Color Universal Design" (2008); a seventh line begins again, dashed.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
