"""Countries, their demonyms and, for the largest, their states: which country a text speaks of."""

from __future__ import annotations

import re
from functools import lru_cache

# country: demonyms (and other words that mean the country), separated by /.
_TABLE = """
Afghanistan:Afghan|Albania:Albanian|Algeria:Algerian|Argentina:Argentine/Argentinian|Armenia:Armenian
Australia:Australian|Austria:Austrian/Austro-Hungarian/Austria-Hungary|Azerbaijan:Azerbaijani|Bahrain:Bahraini
Bangladesh:Bangladeshi|Belarus:Belarusian|Belgium:Belgian|Bolivia:Bolivian|Bosnia and Herzegovina:Bosnian
Botswana:Botswanan|Brazil:Brazilian|Bulgaria:Bulgarian|Burkina Faso:Burkinabe|Cambodia:Cambodian
Cameroon:Cameroonian|Canada:Canadian|Chad:Chadian|Chile:Chilean|China:Chinese/People's Republic of China
Colombia:Colombian|Congo:Congolese|Costa Rica:Costa Rican|Croatia:Croatian|Cuba:Cuban|Cyprus:Cypriot
Czech Republic:Czech/Czechoslovakia/Czechoslovak/Bohemian|Denmark:Danish|Dominican Republic:Dominican
Ecuador:Ecuadorian|Egypt:Egyptian|El Salvador:Salvadoran|Estonia:Estonian|Ethiopia:Ethiopian|Fiji:Fijian
Finland:Finnish|France:French|Gabon:Gabonese|Georgia:Georgian
Germany:German/West Germany/East Germany/West German/East German/Prussian|Ghana:Ghanaian|Greece:Greek
Guatemala:Guatemalan|Guinea:Guinean|Guyana:Guyanese|Haiti:Haitian|Honduras:Honduran|Hong Kong:Hongkonger
Hungary:Hungarian|Iceland:Icelandic
India:Indian/Bollywood/Malayalam/Tamil/Telugu/Kannada/Hindi/Bengali/Marathi/Punjabi|Indonesia:Indonesian
Iran:Iranian/Persian/Persia|Iraq:Iraqi|Ireland:Irish|Israel:Israeli|Italy:Italian|Ivory Coast:Ivorian
Jamaica:Jamaican|Japan:Japanese|Jordan:Jordanian|Kazakhstan:Kazakhstani/Kazakh|Kenya:Kenyan|Kuwait:Kuwaiti
Kyrgyzstan:Kyrgyz|Laos:Laotian|Latvia:Latvian|Lebanon:Lebanese|Liberia:Liberian|Libya:Libyan
Lithuania:Lithuanian|Luxembourg:Luxembourgish|Madagascar:Malagasy|Malawi:Malawian|Malaysia:Malaysian|Mali:Malian
Malta:Maltese|Mauritius:Mauritian|Mexico:Mexican|Moldova:Moldovan|Mongolia:Mongolian|Montenegro:Montenegrin
Morocco:Moroccan|Mozambique:Mozambican|Myanmar:Burmese/Burma|Namibia:Namibian|Nepal:Nepalese/Nepali
Netherlands:Dutch/The Netherlands|New Zealand:New Zealander|Nicaragua:Nicaraguan|Niger:Nigerien|Nigeria:Nigerian
North Korea:North Korean|Norway:Norwegian|Pakistan:Pakistani|Panama:Panamanian
Papua New Guinea:Papua New Guinean|Paraguay:Paraguayan|Peru:Peruvian|Philippines:Filipino/Philippine
Poland:Polish|Portugal:Portuguese|Puerto Rico:Puerto Rican|Qatar:Qatari|Romania:Romanian
Russia:Russian/Soviet Union/Soviet|Rwanda:Rwandan|Saudi Arabia:Saudi|Senegal:Senegalese
Serbia:Serbian/Yugoslav/Yugoslavia|Sierra Leone:Sierra Leonean|Singapore:Singaporean|Slovakia:Slovak
Slovenia:Slovenian/Slovene|Somalia:Somali|South Africa:South African|South Korea:South Korean/Korean/Korea
Spain:Spanish/Catalan|Sri Lanka:Sri Lankan/Sinhala|Sudan:Sudanese|Sweden:Swedish|Switzerland:Swiss|Syria:Syrian
Taiwan:Taiwanese|Tajikistan:Tajik|Tanzania:Tanzanian|Thailand:Thai|Tonga:Tongan|Trinidad and Tobago:Trinidadian
Tunisia:Tunisian|Turkey:Turkish/Ottoman|Uganda:Ugandan|Ukraine:Ukrainian|United Arab Emirates:Emirati
United Kingdom:British/English/Scottish/Welsh/England/Scotland/Wales/UK/Great Britain/Northern Ireland
United Kingdom:Northern Irish
United States:American/United States of America/US/U.S./USA/Hollywood|Uruguay:Uruguayan|Uzbekistan:Uzbek
Vanuatu:Vanuatuan|Venezuela:Venezuelan|Vietnam:Vietnamese|Yemen:Yemeni|Zambia:Zambian|Zimbabwe:Zimbabwean
Samoa:Samoan|Jersey:Jerseyman
"""
# country: states, provinces, regions and capitals that stand for it in a location.
_REGIONS = """
United States:Alabama/Alaska/Arizona/Arkansas/California/Colorado/Connecticut/Delaware/Florida/Hawaii/Idaho
United States:Illinois/Indiana/Iowa/Kansas/Kentucky/Louisiana/Maine/Maryland/Massachusetts/Michigan
United States:Minnesota/Mississippi/Missouri/Montana/Nebraska/Nevada/New Hampshire/New Jersey/New Mexico
United States:New York/North Carolina/North Dakota/Ohio/Oklahoma/Oregon/Pennsylvania/Rhode Island
United States:South Carolina/South Dakota/Tennessee/Texas/Utah/Vermont/Virginia/Washington/West Virginia
United States:Wisconsin/Wyoming
Canada:Ontario/Quebec/British Columbia/Alberta/Manitoba/Saskatchewan/Nova Scotia/New Brunswick/Newfoundland
Canada:Prince Edward Island/Yukon/Nunavut/Northwest Territories/Toronto/Montreal/Vancouver
Australia:New South Wales/Queensland/South Australia/Tasmania/Western Australia/Sydney/Melbourne
India:Kerala/Tamil Nadu/Karnataka/Maharashtra/Gujarat/Rajasthan/Uttar Pradesh/Bihar/West Bengal/Punjab/Assam
India:Odisha/Delhi/Mumbai
United Kingdom:London/Lancashire/Yorkshire/Kent/Essex/Sussex/Surrey/Devon/Cornwall/Norfolk/Suffolk/Hampshire
United Kingdom:Gwynedd/Powys
Russia:Oblast/Krai/Moscow/Saint Petersburg|Japan:Tokyo/Prefecture
China:Guangdong/Sichuan/Beijing/Shanghai/Yunnan/Hunan|France:Paris
Germany:Bavaria/Saxony/Berlin/Hesse/Brandenburg/Lower Saxony/Schleswig-Holstein
Italy:Rome/Sicily/Tuscany/Lombardy/Sardinia/Piedmont|Poland:Voivodeship/Warsaw
"""


def _parse(table: str) -> dict[str, str]:
    rows = [row.partition(":") for row in table.replace("\n", "|").split("|") if row]
    return {word: country for country, _, rest in rows for word in [country, *rest.split("/")]}


COUNTRY_OF = _parse(_TABLE)
REGION_OF = {k: v for k, v in _parse(_REGIONS).items() if k not in COUNTRY_OF}


def _compile(table: dict[str, str]) -> re.Pattern[str]:
    alternatives = "|".join(re.escape(w) for w in sorted(table, key=len, reverse=True))
    return re.compile(rf"(?<![\w])(?:{alternatives})(?![\w])")


_COUNTRY_RE = _compile(COUNTRY_OF)
_REGION_RE = _compile(REGION_OF)


@lru_cache(maxsize=8192)
def country_mentions(text: str) -> tuple[tuple[int, str, str], ...]:
    """Return (offset, surface form, country) of each country or demonym in `text`, in order."""
    return tuple((m.start(), m.group(), COUNTRY_OF[m.group()]) for m in _COUNTRY_RE.finditer(text))


@lru_cache(maxsize=8192)
def region_mentions(text: str) -> tuple[tuple[int, str, str], ...]:
    """Like `country_mentions`, for states, provinces and capitals."""
    return tuple((m.start(), m.group(), REGION_OF[m.group()]) for m in _REGION_RE.finditer(text))


def is_country_word(text: str) -> bool:
    """Tell whether the whole of `text` is a country's name or demonym."""
    return text in COUNTRY_OF or all(part in COUNTRY_OF for part in text.split("-"))
